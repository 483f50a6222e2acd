/** Sweeps by a filter that an org runs at a time for each of its endpoints, and as many for no endpoint alone. */
export const maxFilterSweeps = 10
