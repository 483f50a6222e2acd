/** How PostgreSQL plans: once for each statement. A plan made while a table was small would go on reading it whole as it grows. */
export const planSettings = { enable_seqscan: "off", plan_cache_mode: "force_generic_plan" }
