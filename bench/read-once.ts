// Reads one recording in a process of its own and prints the time and the peak memory. Run by main.ts.
import { loadRecording } from '../src/cli/input.ts';

const quiet = { update: () => {}, clear: () => {} };
const started = performance.now();
const recording = await loadRecording(process.argv[2]!, quiet);
const seconds = (performance.now() - started) / 1000;
const events = recording.traces.reduce((sum, trace) => sum + trace.events.count, 0);
console.log(JSON.stringify({ seconds, events, maxRssBytes: process.resourceUsage().maxRSS * 1024 }));
