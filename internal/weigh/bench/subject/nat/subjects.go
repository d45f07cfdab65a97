// SPDX-License-Identifier: Apache-2.0

// Package nat has the kernel's own NAT by rules, and what stands behind such rules.
package nat

import "github.com/jeoul/jeoul/internal/weigh/bench/subject"

// Subjects are those of this package, in the order in which a person should see them.
var Subjects = []subject.Subject{dockerProxy{}, iptablesNth{}, nftables{}}
