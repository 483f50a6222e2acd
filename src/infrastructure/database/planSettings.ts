/**
 * PostgreSQL plans each statement once. A sequential scan that was planned for a small table would still be used after the
 * table has grown, and a bitmap scan with a sort reads all matching rows to return the first few: both are off.
 */
export const planSettings = { enable_seqscan: "off", enable_bitmapscan: "off", plan_cache_mode: "force_generic_plan" }
