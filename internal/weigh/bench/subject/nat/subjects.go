// SPDX-License-Identifier: Apache-2.0

// Package nat has the kernel's own NAT by rules, and relays behind such rules.
package nat

import "github.com/jeoul/jeoul/internal/weigh/bench/subject"

// Subjects are the subjects of this package, in the order of their presentation.
var Subjects = []subject.Subject{dockerProxy{}, iptablesNth{}, nftables{}}
