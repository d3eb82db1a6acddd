// Call sites as people read them: the innermost frame of their own code, with the file's last two names.
import { describe, expect, it } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import { labelOf, topSites } from '../../src/report/sites.ts';
import { FORWARD_MARK } from '../../src/trace/snapshot/forward-frames.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { forgeTrace } from '../support/forged.ts';
import { scripted } from '../support/scripted.ts';

/** The label of a stack, innermost frame first. */
function label(...files: readonly string[]): string {
  return labels([files.map((file, line) => [file, line + 1, 'f'])])[0]!;
}

type FrameRow = readonly [file: string, line: number, name: string];

/** The labels of stacks of one recording. */
function labels(stacks: readonly (readonly FrameRow[])[]): string[] {
  const symbols = new Symbols();
  const ids = stacks.map((rows) =>
    rows.reduceRight(
      (outer, [file, line, name]) =>
        symbols.stacks.push(outer, symbols.frames.intern(symbols.internString(name), symbols.internString(file), line)),
      -1,
    ),
  );
  const trace: Trace = { ...forgeTrace([]), symbols };
  return ids.map((stack) => labelOf(trace, stack, false));
}

const native = (name: string): FrameRow => ['??', 0, name];
const USER: FrameRow = ['/home/me/proj/model.py', 12, 'forward'];
const TRAIN: FrameRow = ['/home/me/proj/train.py', 40, 'main'];
const OPS = native('at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)');
const ENGINE = [
  native('torch::autograd::Node::operator()(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)'),
  native('torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&, torch::autograd::Node*)'),
  ['thread48.o', 0, 'execute_native_thread_routine'],
  native('__clone'),
] as const;
const node = (name: string) => native(`torch::autograd::generated::${name}::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)`);

describe('requests without a stack', () => {
  const labelsIn = (write: Parameters<typeof scripted>[0]) => {
    const trace = scripted(write);
    return topSites(trace, trace.events.count - 1, 9).map((site) => site.label);
  };

  it('are smaller than all with one, if stacks are recorded of large requests', () => {
    const found = labelsIn((script) => {
      for (let index = 0; index < 50; index++) {
        script.alloc(10 * MIB, [USER]);
        for (const size of [512, 3 * MIB, 9 * MIB]) script.alloc(size);
      }
    });
    expect(found).toEqual(['(no stack: recorded of requests from 10 MiB on)', 'proj/model.py:12 forward']);
  });

  it('are of any size in a backward pass that PyTorch recorded', () => {
    const found = labelsIn((script) => {
      for (let index = 0; index < 50; index++) {
        for (const size of [2 * MIB, 10 * MIB]) script.alloc(size, [USER]);
        for (const size of [512, 3 * MIB, 12 * MIB]) script.alloc(size);
      }
    });
    expect(found).toEqual(['(no stack: probably a backward pass)', 'proj/model.py:12 forward']);
  });
});

describe('a call site', () => {
  it('is the innermost frame outside of libraries', () => {
    expect(label('/env/lib/site-packages/torch/nn/linear.py', '/home/me/model.py', '/home/me/train.py')).toBe('me/model.py:2 f');
  });

  it('of a job on Windows is the same', () => {
    expect(label('C:\\env\\Lib\\site-packages\\torch\\nn\\linear.py', 'C:\\me\\model.py')).toBe('me/model.py:2 f');
  });

  it('may lie in a folder of the user that is called like a library', () => {
    expect(label('/env/lib/site-packages/torch/optim/adam.py', '/home/me/torch/train.py')).toBe('torch/train.py:2 f');
    expect(label('/home/me/lightning/train.py', '/home/me/main.py')).toBe('lightning/train.py:1 f');
  });

  it('is not in the sources of PyTorch, either', () => {
    expect(label('/home/me/pytorch/torch/optim/adam.py', '/home/me/pytorch/torch/_tensor.py', '/home/me/train.py')).toBe('me/train.py:3 f');
  });

  it('in libraries alone is their innermost frame', () => {
    expect(label('/env/lib/site-packages/torch/nn/linear.py')).toBe('nn/linear.py:1 f');
  });
});

describe('memory of a backward pass', () => {
  const own = [OPS, node('BmmBackward0'), ...ENGINE];

  it('is that of its operator, never of the thread', () => {
    expect(labels([own])).toEqual(['backward of bmm']);
    expect(labels([[node('ScaledDotProductFlashAttentionBackward0'), ...ENGINE]])).toEqual([
      'backward of scaled_dot_product_flash_attention',
    ]);
  });

  it('is that of the line in forward, if the recording has it', () => {
    expect(labels([[...own, ['', 0, FORWARD_MARK], USER, TRAIN]])).toEqual(['backward of bmm at proj/model.py:12 forward']);
    expect(labels([[['', 0, FORWARD_MARK], USER, TRAIN]])).toEqual(['backward of proj/model.py:12 forward']);
    expect(labels([[['', 0, 'backward of AddmmBackward0'], USER, TRAIN]])).toEqual(['backward of addmm at proj/model.py:12 forward']);
    expect(labels([[['', 0, 'backward of AddmmBackward0']]])).toEqual(['backward of addmm']);
    expect(labels([[['', 0, 'backward of torch::autograd::CopySlices'], USER]])).toEqual([
      'backward of CopySlices at proj/model.py:12 forward',
    ]);
    expect(labels([[['', 0, 'backward of torch::autograd::CppNode<me::MyOp>'], USER]])).toEqual([
      'backward of MyOp at proj/model.py:12 forward',
    ]);
    expect(labels([[['', 0, 'backward of torch::autograd::AccumulateGrad']]])).toEqual(['backward, gradient accumulation']);
  });

  it('is that of the only line that runs the operator in forward', () => {
    const forward = (line: number): FrameRow[] => [
      OPS,
      native('torch::autograd::VariableType::(anonymous namespace)::bmm(c10::DispatchKeySet, at::Tensor const&)'),
      ['/home/me/proj/model.py', line, 'attention'],
      TRAIN,
    ];
    expect(labels([own, forward(7)])[0]).toBe('backward of bmm at proj/model.py:7 attention');
    expect(labels([own, forward(7), forward(9)])[0]).toBe('backward of bmm');
  });

  it('is that of the work beside operators', () => {
    expect(labels([[OPS, native('torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)'), ...ENGINE]])).toEqual([
      'backward, gradient accumulation',
    ]);
    expect(labels([[OPS, native('torch::autograd::InputBuffer::accumulate(at::Tensor, long)'), ...ENGINE.slice(1)]])).toEqual([
      'backward, sum of gradients',
    ]);
  });

  it("is that of the user's own line, where one runs in backward", () => {
    const custom: FrameRow = ['/home/me/proj/ops.py', 30, 'backward'];
    const apply: FrameRow = ['/env/lib/python3.12/site-packages/torch/autograd/function.py', 300, 'apply'];
    expect(labels([[OPS, custom, apply, native('torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)'), ...ENGINE]])).toEqual([
      'proj/ops.py:30 backward',
    ]);
    expect(labels([[custom, apply, ['', 0, FORWARD_MARK], USER]])).toEqual(['proj/ops.py:30 backward']);
  });

  it('is that of the call, if nothing else is known', () => {
    const graph: FrameRow = ['/env/lib/python3.12/site-packages/torch/autograd/graph.py', 800, '_engine_run_backward'];
    const tensor: FrameRow = ['/env/lib/python3.12/site-packages/torch/_tensor.py', 600, 'backward'];
    expect(labels([[graph, tensor, TRAIN]])).toEqual(['backward called at proj/train.py:40 main']);
    expect(labels([ENGINE])).toEqual(['backward of an unknown operator']);
    expect(labels([[native('at::_ops::empty_strided::call()'), native('at::_ops::to_dtype::call()'), ...ENGINE]])).toEqual([
      'backward, operator to_dtype',
    ]);
    const cast = 'void torch::autograd::validate_outputs_impl<torch::autograd::Edge>(std::vector<torch::autograd::Edge>&)';
    expect(labels([[native('at::_ops::to_dtype::call()'), native(cast), ...ENGINE]])).toEqual(['backward, cast of gradients']);
  });
});

describe('memory older than the recording', () => {
  const stacked = (freed: boolean): Trace => {
    const row = { address: 0x7f0000000000, size: 2 ** 20, stream: 0 };
    const symbols = new Symbols();
    const stack = symbols.stacks.push(-1, symbols.frames.intern(symbols.internString('build'), symbols.internString('/me/model.py'), 3));
    const block = { address: row.address, size: row.size, requested: row.size, state: 'live', stack } as const;
    const segment = { ...row, pool: 0, small: true, expandable: false, stack: -1, blocks: [block] };
    const kind = freed ? EventKind.FreeRequested : EventKind.Alloc;
    const event = { kind, address: row.address + (freed ? 0 : 2 ** 30), size: row.size };
    return { ...forgeTrace([event], { endSegments: [segment] }), symbols };
  };

  it('has the call site that the snapshot knows of its block', () => {
    expect(topSites(stacked(false), 0, 5)).toContainEqual({ label: 'me/model.py:3 build', bytes: 2 ** 20, allocations: 1 });
  });

  it('has none if it was freed since: the block is another one', () => {
    expect(topSites(stacked(true), -1, 5)).toEqual([]);
  });

  it('has none if its free was lost and its address reused', () => {
    const trace = stacked(false);
    const allocations = { ...trace.allocations, address: trace.allocations.address.map(() => 0x7f0000000000) };
    expect(topSites({ ...trace, allocations, impliedFrees: new Map([[0, 0]]) }, -1, 5)).toEqual([]);
  });
});

describe('memory without frames of Python', () => {
  it('is never that of a function that starts threads, in whichever language it is written', () => {
    const start: readonly FrameRow[] = [
      ['thread48.o', 0, 'execute_native_thread_routine'],
      ['./nptl/pthread_create.c', 442, 'start_thread'],
      ['../sysdeps/unix/sysv/linux/x86_64/clone3.S', 81, '__clone3'],
    ];
    const engine = native('torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)');
    const watchdog = native('c10d::ProcessGroupNCCL::Watchdog::run()');
    const stacks = [start, [native('??'), ...start], [engine, ...start], [watchdog, ...start], [['', 0, '']] as const];
    expect(labels(stacks)).toEqual([
      '(no frames of the program)',
      '(no frames of the program)',
      'backward of an unknown operator',
      '??:0 c10d::ProcessGroupNCCL::Watchdog::run()',
      '(no frames of the program)',
    ]);
  });

  it('is that of its operator', () => {
    expect(labels([[native('torch::unwind::unwind()'), OPS, native('main')]])).toEqual(['operator bmm (no Python frames)']);
  });
});
