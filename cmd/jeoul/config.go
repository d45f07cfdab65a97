// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

type configCmd struct {
	Reference configReferenceCmd `cmd:"" help:"Print what each key takes and does, as a page in Markdown."`
	Schema    configSchemaCmd    `cmd:"" help:"Print the JSON schema of a configuration, for editors."`
	Write     configWriteCmd     `cmd:"" help:"Check a configuration and print it without defaults, in the reference's order."`
}

type configReferenceCmd struct{}

// Run prints the reference page.
func (configReferenceCmd) Run(context.Context) error { return config.Reference(os.Stdout) }

type configSchemaCmd struct{}

// Run prints the schema.
func (configSchemaCmd) Run(context.Context) error {
	schema, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(schema)
	return err
}

type configWriteCmd struct {
	File string `arg:"" type:"path" placeholder:"FILE" help:"Configuration in YAML. Its comments are not kept."`
}

// Run reads the file and prints it again.
func (c configWriteCmd) Run(context.Context) error {
	cfg, err := config.Load(c.File)
	if err != nil {
		return err
	}
	warn(cfg)
	text, err := config.Write(cfg)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
