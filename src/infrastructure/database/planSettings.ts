/**
 * PostgreSQL plans each statement once, perhaps while its tables are empty. So a session has settings, and other tricks
 * are where they are used: a comment "Planner (name)" says what a plan would do without (docs/architecture.md).
 */
export const planSettings = {
  // Planner (no sequential scans): one that was planned for a small table would be used after the table has grown.
  enable_seqscan: "off",
  // Planner (no bitmap scans): one with a sort reads all matching rows to return the first few.
  enable_bitmapscan: "off",
  // Planner (no compiler): it takes half a second or more for a plan with a high cost, which a sequential scan has when
  // nothing else is possible.
  jit: "off",
  // Planner (one plan for all parameters): otherwise the first five calls are planned one by one, each for its own
  // values.
  plan_cache_mode: "force_generic_plan",
}
