// The command line as a whole: global behaviour here, one file per command in commands/.
import { Command } from 'commander';
import { analyzeCommand } from './commands/analyze.ts';
import { convertCommand } from './commands/convert.ts';
import { doctorCommand } from './commands/doctor.ts';
import { planCommand } from './commands/plan.ts';
import { replayCommand } from './commands/replay.ts';
import { reportCommand } from './commands/report.ts';
import { recordCommand, runCommand } from './commands/run.ts';
import { serveCommand } from './commands/serve.ts';
import { verifyCommand } from './commands/verify.ts';
import { readVersion } from './version.ts';

export function createProgram(): Command {
  const program = new Command('weir')
    .description(
      "Says what a GPU job's memory was lost to and what another allocator would have needed, and runs the job on one that needs less.",
    )
    .version(readVersion(), '-V, --version')
    .enablePositionalOptions()
    .showHelpAfterError('(weir --help, or weir COMMAND --help, shows what can be written)')
    .exitOverride()
    .addHelpText(
      'before',
      `Examples:
  weir analyze snapshot.pickle                 what was lost, to what, and which setting gets it back
  weir analyze rank*.pickle --capacity 80GiB   the ranks of one job, and whether they fit an 80 GiB GPU
  weir serve snapshot.pickle --open            the same as a page
  weir run -- python train.py                  the job itself, in less memory
`,
    )
    .addHelpText(
      'after',
      `
Record a job with weir record -- COMMAND, or make a snapshot in three lines of Python:
  torch.cuda.memory._record_memory_history(max_entries=5_000_000)   # at the start
  ...                                                               # the work
  torch.cuda.memory._dump_snapshot("snapshot.pickle")               # at the end, or in \`except torch.OutOfMemoryError\`

Exit codes: 0 done, 1 a --fail-if rule was broken, 2 wrong usage, 3 unusable file, 70 a defect in weir; weir run and record end as their command does.`,
    );
  for (const command of [
    runCommand(),
    recordCommand(),
    analyzeCommand(),
    replayCommand(),
    planCommand(),
    verifyCommand(),
    convertCommand(),
    serveCommand(),
    reportCommand(),
    doctorCommand(),
  ]) {
    program.addCommand(command.exitOverride().showHelpAfterError(`(weir ${command.name()} --help shows what can be written)`));
  }
  return program;
}
