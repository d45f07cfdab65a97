// SPDX-License-Identifier: Apache-2.0

// Command jeoul-bgp speaks BGP for a balancer. It is a separate program, because sessions outlive the balancer's
// process, and because a library of BGP is a fifth of jeoul.
package main

import (
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/bgp/command"
)

func main() {
	if err := command.Run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "jeoul-bgp: %v\n", err)
		os.Exit(1)
	}
}
