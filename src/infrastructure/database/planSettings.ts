/**
 * How PostgreSQL plans: once for each statement. A plan made while a table was small would go on reading it whole as it grows,
 * and one that sorts what a bitmap scan found would read all that matches to return the first few.
 */
export const planSettings = { enable_seqscan: "off", enable_bitmapscan: "off", plan_cache_mode: "force_generic_plan" }
