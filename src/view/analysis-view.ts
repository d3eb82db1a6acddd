// An analysis as the page gets it: the facts themselves, whose words the page takes from src/report/words.
import type { Analysis } from '../report/analysis.ts';

export interface AnalysisView {
  readonly file: string;
  readonly analysis: Analysis;
  /** False while allocators are still to come. */
  readonly isComplete: boolean;
}
