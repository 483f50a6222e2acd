/** Lines in the place of a text that is on its way, so that nothing moves when it arrives. */
export const Skeleton = ({ lines = 1 }: { readonly lines?: number }) => (
  <div class="stack" aria-busy="true">
    <span class="visually-hidden">Loading</span>
    {Array.from({ length: lines }, (_, i) => (
      <span key={i} class={`skeleton ${["w-70", "w-50", "w-30"][i % 3]}`} />
    ))}
  </div>
)
