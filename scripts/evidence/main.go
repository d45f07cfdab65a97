// SPDX-License-Identifier: Apache-2.0

// Command evidence makes the evidence that is embedded in `jeoul advise` from committed results: go generate
// ./internal/weigh/advise.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/weigh/advise"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func main() {
	from := flag.String("results", "docs/results", "the directory of committed results")
	to := flag.String("to", "evidence.json", "the file to write")
	flag.Parse()
	if err := summarise(*from, *to); err != nil {
		fmt.Fprintf(os.Stderr, "evidence: %v\n", err)
		os.Exit(1)
	}
}

// summarise writes the evidence of the results in a directory.
func summarise(from, to string) error {
	evidence, err := advise.Committed(from)
	if err != nil {
		return err
	}
	data, err := evidence.Encode()
	if err != nil {
		return err
	}
	if err := results.WriteFile(to, data); err != nil {
		return fmt.Errorf("writing %s: %w", to, err)
	}
	return nil
}
