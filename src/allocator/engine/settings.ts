// The engine's presets as whole sets of settings. Settings and their values: abi/settings.ts.
import { ENGINE_DEFAULTS, ENGINE_PRESETS, type EngineSettings, HANDLE_MULTIPLES, REGION_EIGHTHS } from '../../abi/settings.ts';
import { roundUp } from '../../base/bytes.ts';

/** The settings of a preset for handles of this unit. The engine rounds the values of a preset in the same way when C applies it. */
export function presetSettings(preset: keyof typeof ENGINE_PRESETS, handleUnit: number = ENGINE_DEFAULTS.handleUnit): EngineSettings {
  const settings: Record<keyof EngineSettings, number> = { ...ENGINE_DEFAULTS, ...ENGINE_PRESETS[preset], handleUnit };
  for (const name of HANDLE_MULTIPLES) settings[name] = roundUp(settings[name], handleUnit);
  return settings as EngineSettings;
}

/** Weir's own policy. */
export const WEIR_SETTINGS: EngineSettings = presetSettings('weir');
export const GMLAKE_SETTINGS: EngineSettings = presetSettings('gmlake');

/** Addresses to reserve per arena: a little more than the GPU's memory. Without its size, the default: more than any GPU has. */
export function regionBytesFor(deviceBytes: number | undefined, handleUnit: number): number {
  if (deviceBytes === undefined) return ENGINE_DEFAULTS.regionBytes;
  return Math.max(handleUnit, roundUp((deviceBytes * REGION_EIGHTHS) / 8, handleUnit));
}
