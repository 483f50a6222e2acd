import { Link } from "./router.tsx"
import icon from "../icon.svg"

export const Brand = () => (
  <Link to="/" class="brand" aria-label="Gatehouse, home">
    <img src={icon} alt="" />
    <span class="label">Gatehouse</span>
  </Link>
)
