// The command line: global options and help here, one file per command in commands/.
import { Command } from 'commander';
import { DUMP_SNAPSHOT, START_RECORDING } from '../report/words/shell.ts';
import { analyzeCommand } from './commands/analyze.ts';
import { convertCommand } from './commands/convert.ts';
import { diffCommand } from './commands/diff.ts';
import { doctorCommand } from './commands/doctor.ts';
import { fitCommand } from './commands/fit.ts';
import { planCommand } from './commands/plan.ts';
import { replayCommand } from './commands/replay.ts';
import { reportCommand } from './commands/report.ts';
import { recordCommand, runCommand } from './commands/run.ts';
import { serveCommand } from './commands/serve.ts';
import { superviseCommand } from './commands/supervise.ts';
import { verifyCommand } from './commands/verify.ts';
import { readVersion } from './version.ts';

export function createProgram(): Command {
  const program = new Command('weir')
    .description('Shows where a GPU job loses memory and what other allocators would need, and runs the job on one that needs less.')
    .version(readVersion(), '-V, --version')
    .enablePositionalOptions()
    .showHelpAfterError('(see weir --help or weir COMMAND --help)')
    .exitOverride()
    .addHelpText(
      'before',
      `Examples:
  weir analyze snapshot.pickle                 where memory was lost, and which setting gets it back
  weir analyze rank*.pickle --capacity 80GiB   all ranks of a job, and whether they fit on 80 GiB
  weir serve snapshot.pickle --open            the same in a browser
  weir diff before.pickle after.pickle         which lines hold more memory than before
  weir run -- python train.py                  the job itself, with less memory
`,
    )
    .addHelpText(
      'after',
      `
Record a job with weir record -- COMMAND, or make a snapshot in Python:
  ${START_RECORDING}   # at the start
  ${DUMP_SNAPSHOT.padEnd(START_RECORDING.length)}   # at the end, or in \`except torch.OutOfMemoryError\`

Exit codes: 0 done, 1 a --fail-if rule is broken or a plan is wrong, 2 wrong usage, 3 unusable file, 70 a bug in weir.
weir run and weir record exit as their command does.`,
    );
  for (const command of [
    runCommand(),
    recordCommand(),
    analyzeCommand(),
    diffCommand(),
    replayCommand(),
    fitCommand(),
    planCommand(),
    verifyCommand(),
    convertCommand(),
    serveCommand(),
    reportCommand(),
    doctorCommand(),
  ]) {
    program.addCommand(command.exitOverride().showHelpAfterError(`(see weir ${command.name()} --help)`));
  }
  // For the Python part alone, which has checked the options.
  program.addCommand(superviseCommand().exitOverride(), { hidden: true });
  return program;
}
