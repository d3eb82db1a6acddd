// `weir verify PLAN FILE`: checks a plan against its file, with code that shares nothing with the planners.
import { Command } from 'commander';
import { parsePlanBytes, requirePlan } from '../../plan/files/plan-bytes.ts';
import { verifyPlanOn } from '../../plan/files/plan-input.ts';
import { SCHEMA } from '../../report/json.ts';
import { formatVerification } from '../../report/terminal/plan.ts';
import { ExitCode } from '../exit-code.ts';
import { naming, readBytes } from '../input.ts';
import { requireOneInput } from '../input-pieces.ts';
import { gpuOption, jsonOption, quietOption } from '../options.ts';
import { loadPlanInput } from '../plan-files.ts';
import { createProgress } from '../progress.ts';

interface VerifyOptions {
  readonly gpu?: number;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export function verifyCommand(): Command {
  return new Command('verify')
    .summary('check a plan independently')
    .description(
      'Checks a plan against its file. The plan must have every block of the step, with the size and lifetime of the recording. No two blocks may share a byte at any time. Every block must be swapped in before it is used. Exit code 0: correct; 1: the plan is wrong; 3: a file cannot be used.',
    )
    .argument('<plan>', 'a plan made by weir plan -o')
    .argument('<file>', 'the file that the plan is for: a recording, buffers or accesses')
    .addOption(gpuOption())
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText('before', 'Examples:\n  weir verify step.plan snapshot.pickle\n  weir verify swaps.plan trace.weir --json\n')
    .action(verify);
}

async function verify(planPath: string, file: string, options: VerifyOptions): Promise<void> {
  const progress = createProgress(options.quiet ?? false);
  requireOneInput([planPath, file]);
  const bytes = await readBytes(planPath, progress, requirePlan);
  const plan = naming(planPath, () => parsePlanBytes(bytes));
  const input = await loadPlanInput(file, { command: 'verify', swap: plan.kind === 'swaps', gpu: options.gpu }, progress);
  const { faults, followed } = naming(planPath, () => verifyPlanOn(plan, input));
  progress.clear();
  if (options.json) {
    const share = followed ? { planned: followed.planned, followed: followed.followed } : {};
    process.stdout.write(
      `${JSON.stringify({ schema: SCHEMA, kind: plan.kind, verified: faults.length === 0, faults: faults.map((fault) => fault.message), ...share })}\n`,
    );
  } else {
    process.stdout.write(formatVerification(`${planPath} on ${file}`, faults, followed));
  }
  if (faults.length > 0) process.exitCode = ExitCode.RuleBroken;
}
