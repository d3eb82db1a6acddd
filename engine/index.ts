export { grow } from './growth';
export { stitch, place, extend } from './views';
export { surveyArena } from './survey';
