// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/members"
)

// membersCmd has the commands about the balancers that share VIPs.
type membersCmd struct {
	Key membersKeyCmd `cmd:"" help:"Print a new key for the file that members.key_file names."`
}

type membersKeyCmd struct{}

// Run prints a key.
func (membersKeyCmd) Run() error {
	fmt.Println(members.NewKey())
	return nil
}
