// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// tokenCmd makes a token of the API.
type tokenCmd struct {
	Name string `arg:"" help:"The token's name, which the balancer's log shows with each change."`
	Role string `name:"role" required:"" enum:"read,operate,configure" placeholder:"read|operate|configure" help:"The rights of the token; each role includes those before it."`
	File string `name:"file" short:"f" required:"" type:"path" placeholder:"FILE" help:"The file of tokens, which api.tokens of the configuration names; it is created if it is missing."`
}

// Help explains how to revoke a token.
func (tokenCmd) Help() string {
	return `The token is printed once; the file has its hash only. A running balancer reads the file again by itself.
To take a token back, remove its line from the file.`
}

// Run adds the token to the file, and prints it.
func (c *tokenCmd) Run() error {
	text, err := os.ReadFile(c.File)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("add a token: %w", err)
	}
	secret, entry, err := access.NewToken(c.Name, ops.Role(c.Role))
	if err != nil {
		return err
	}
	longer, err := access.AddToken(c.File, text, entry)
	if err != nil {
		return err
	}
	// In place, so that owner and mode stay.
	file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = file.Write(longer[len(text):])
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		return fmt.Errorf("add a token: %w", err)
	}
	fmt.Println(secret)
	return nil
}
