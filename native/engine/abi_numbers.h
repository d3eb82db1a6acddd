/* Numbers shared with other languages: the engine's settings, statistics, explanations and states, the preset gmlake, and the
 * plan file. engine/ has them in AssemblyScript, src/ in TypeScript. */
#ifndef WEIR_ABI_NUMBERS_H
#define WEIR_ABI_NUMBERS_H

/* Settings, by their number in engine/settings.ts. */
enum weir_setting {
  WEIR_SETTING_LARGE_UNIT = 1,
  WEIR_SETTING_HANDLE_UNIT = 2,
  WEIR_SETTING_FIXED_HANDLE = 3,
  WEIR_SETTING_MIN_STITCH = 4,
  WEIR_SETTING_STITCH_LIMIT = 5,
  WEIR_SETTING_STITCH_ROOM = 6,
  WEIR_SETTING_LONG_REGIONS = 7,
  WEIR_SETTING_REGION_BYTES = 8,
  WEIR_SETTING_GMLAKE = 9,
  WEIR_SETTING_CARVE_SLABS = 16,
  WEIR_SETTING_ACCESS_EACH = 17,
  WEIR_SETTING_LOAD_HANDLE = 22,
  WEIR_SETTING_HANDLE_COUNT = 23,
  WEIR_SETTING_LEND = 24,
  WEIR_SETTING_QUEUE_COMPLETED = 35
};

/* The preset gmlake: SET(setting, value) for each difference from the preset weir. `handle_unit` is the backend's granularity.
 * Lending is off too; the caller of the preset decides about it. */
#define WEIR_PRESET_GMLAKE(SET, handle_unit)      \
  SET(WEIR_SETTING_LARGE_UNIT, 2u << 20)          \
  SET(WEIR_SETTING_FIXED_HANDLE, handle_unit)     \
  SET(WEIR_SETTING_MIN_STITCH, 128u << 20)        \
  SET(WEIR_SETTING_STITCH_LIMIT, 4096)            \
  SET(WEIR_SETTING_STITCH_ROOM, 1)                \
  SET(WEIR_SETTING_LONG_REGIONS, 0)               \
  SET(WEIR_SETTING_GMLAKE, 1)                     \
  SET(WEIR_SETTING_CARVE_SLABS, 0)                \
  SET(WEIR_SETTING_ACCESS_EACH, 1)

/* Statistics, by their number in engine/report.ts. */
enum weir_statistic {
  WEIR_STATISTIC_ALLOCATED = 2,
  WEIR_STATISTIC_FITS = 12,
  WEIR_STATISTIC_STITCHES = 15,
  WEIR_STATISTIC_OWN_MEMORY = 21,
  WEIR_STATISTIC_BORROWS = 22,
  WEIR_STATISTIC_WAITS = 24,
  WEIR_STATISTIC_PARKED = 27,
  WEIR_STATISTICS_END = 28,
  /* Statistics of plans have numbers of their own. */
  WEIR_STATISTIC_PLANNED_HITS = 32,
  WEIR_STATISTIC_PLANNED_MISSES = 33,
  WEIR_STATISTIC_PLANNED_OCCUPIED = 34,
  WEIR_STATISTIC_ACTIVE_PLAN = 35,
  WEIR_PLAN_STATISTICS_END = 39
};

/* The explanation of the last failed request, by number in engine/report.ts. */
enum weir_explanation {
  WEIR_EXPLANATION_FREE = 3,
  WEIR_EXPLANATION_LARGEST = 4,
  WEIR_EXPLANATION_ASSEMBLABLE = 5,
  WEIR_EXPLANATION_CALL = 6,
  WEIR_EXPLANATION_ELSEWHERE = 7
};

/* What WEIR_EXPLANATION_CALL can be, as in engine/failure.ts. */
enum weir_failed_call { WEIR_CALL_OWN_MEMORY = 5 };

/* States of a weir_range, as in engine/nodes.ts. */
enum weir_range_state {
  WEIR_RANGE_FREE = 1,
  WEIR_RANGE_LIVE = 2,
  WEIR_RANGE_PENDING = 3,
  WEIR_RANGE_UNBACKED = 4,
  WEIR_RANGE_CARVED = 6,
  WEIR_RANGE_PARKED = 8,
  WEIR_RANGE_PLANNED = 9
};

/* The plan file of a running process, as src/plan/files/process-plan.ts writes it. */
#define WEIR_PLAN_MAGIC "WEIRPLAN"
#define WEIR_PLAN_VERSION 1u
#define WEIR_PLAN_MOST_REQUESTS (1u << 20)
#define WEIR_PLAN_MOST_TURNS 16u
#define WEIR_PLAN_MOST_FOOTPRINT (1ull << 40)
/* Sizes and offsets are multiples of it. */
#define WEIR_PLAN_UNIT 512u

#endif
