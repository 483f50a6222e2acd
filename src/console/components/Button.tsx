import type { ButtonHTMLAttributes, ComponentChildren } from "preact"
import { Icon, type IconName } from "./Icon.tsx"

interface Look {
  readonly icon?: IconName
  /** primary: what a page is for, once on a page. danger: removes something. plain: beside others. */
  readonly look?: "primary" | "danger" | "plain" | "primary danger"
  readonly isSmall?: boolean
}

export const buttonClass = ({ look, isSmall }: Look = {}) => `button ${look ?? ""} ${isSmall === true ? "small" : ""}`

export const Button = ({
  children,
  icon,
  isSmall,
  look,
  ...rest
}: Look & Omit<ButtonHTMLAttributes<HTMLButtonElement>, "icon"> & { readonly children?: ComponentChildren }) => (
  <button
    type="button"
    {...rest}
    class={`${buttonClass({ ...(look && { look }), ...(isSmall && { isSmall }) })} ${children === undefined ? "icon-only" : ""}`}
  >
    {icon !== undefined && <Icon name={icon} />}
    {children}
  </button>
)
