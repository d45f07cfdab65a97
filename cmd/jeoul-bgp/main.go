// SPDX-License-Identifier: Apache-2.0

// Command jeoul-bgp speaks BGP for a balancer. It is a program of its own, because sessions outlive the balancer's
// process, and because a library of BGP is a fifth of jeoul.
package main

import "github.com/jeoul/jeoul/internal/balancer/bgp/command"

func main() { command.Main() }
