// What the trainings behind the results are called, and how numbers are written.

/** By the names that result files use. Lengths vary from step to step where it says so. */
export const TRAININGS = {
  'opt13b-LR-var': 'OPT-13B, LoRA, recomputation, lengths vary',
  'llama7b-LRO-var': 'Llama-7B, LoRA, recomputation, offloading, lengths vary',
  'opt1b3-R': 'OPT-1.3B, recomputation',
  'opt1b3-N-var': 'OPT-1.3B, lengths vary',
  'opt1b3-fixed': 'OPT-1.3B, one length',
  'gpt2xl-R-var': 'GPT-2 XL, recomputation, lengths vary',
  'gpt2xl-var': 'GPT-2 XL, recomputation, lengths vary',
  'gpt2xl-fixed': 'GPT-2 XL, recomputation, one length',
  'bert-wavelet': 'two BERT on two streams',
  'resnet50-b100': 'ResNet-50, batch 100',
  vgg16: 'VGG-16',
  'vgg16-b100': 'VGG-16, batch 100',
  'smartpool-alex': 'AlexNet',
  'smartpool-resnet': 'ResNet',
  'smartpool-vgg': 'VGG',
  'hf-trainer': 'GPT-2 large, Hugging Face Trainer, lengths vary',
  fsdp2: 'Llama of 0.9 B, FSDP2, rank 0 of 2, lengths vary',
  'tick-tock (generated)': 'two streams whose peaks alternate (generated)',
};

export const trainingOf = (name) => TRAININGS[name] ?? name;

export const gib = (bytes, digits = 2) => (bytes / 2 ** 30).toFixed(digits);
export const mib = (bytes, digits = 1) => (bytes / 2 ** 20).toFixed(digits);
export const count = (value) => Number(value).toLocaleString('en-US');
export const geometricMean = (values) => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
export const sum = (values) => values.reduce((total, value) => total + value, 0);

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
