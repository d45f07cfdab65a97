// SPDX-License-Identifier: Apache-2.0

// Command sweep removes the laboratories whose owner is dead: namespaces, processes, mounts and directories
// that an interrupted run of the tests has left. scripts/test.sh runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jeoul/jeoul/internal/lab"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	removed, err := lab.CleanStale(ctx)
	for _, id := range removed {
		fmt.Printf("removed what laboratory %s left\n", id)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
