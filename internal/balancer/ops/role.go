// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"slices"
)

// Role is the permissions of a client of the API.
type Role string

// The roles; each has the permissions of those before it.
const (
	// RoleRead reads everything, including the configuration, and changes nothing.
	RoleRead Role = "read"
	// RoleOperate drains, enables, weighs and checks backends, and traces packets.
	RoleOperate Role = "operate"
	// RoleConfigure changes the configuration, and has the file read again.
	RoleConfigure Role = "configure"
)

// Roles are all of them, from the least to the most.
var Roles = []Role{RoleRead, RoleOperate, RoleConfigure}

// Includes reports whether the role includes another.
func (r Role) Includes(needed Role) bool {
	return slices.Contains(Roles, r) && slices.Index(Roles, r) >= slices.Index(Roles, needed)
}

// UnmarshalText accepts "read", "operate" and "configure".
func (r *Role) UnmarshalText(text []byte) error {
	if !slices.Contains(Roles, Role(text)) {
		return fmt.Errorf("unknown role %q: use read, operate or configure", text)
	}
	*r = Role(text)
	return nil
}
