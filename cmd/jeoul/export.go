// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/move/exporter"
)

// exportCmd writes the configuration of another balancer.
type exportCmd struct {
	Dialect string `arg:"" enum:"${exports}" placeholder:"DIALECT" help:"The format to write: one of ${enum}."`
	File    string `arg:"" optional:"" default:"-" placeholder:"FILE" help:"Configuration in YAML; - is standard input."`
}

// Help describes the output and the exit status.
func (exportCmd) Help() string {
	return `Prints what the other program is configured by, and on standard error a line for each line of the
configuration that is left out, is approximated or is not needed, with the reason and what to do. The
exit status is 0 where nothing is left out, 3 where something is, and 1 where the configuration is wrong
or no service can be expressed.

    jeoul export haproxy jeoul.yaml > haproxy.cfg
    jeoul export ipvsadm jeoul.yaml | ipvsadm-restore`
}

// Run prints the other program's configuration, and the remarks on the one of jeoul.
func (c exportCmd) Run(context.Context) error {
	source, err := c.read()
	if err != nil {
		return err
	}
	result, err := exporter.Export(c.Dialect, source)
	if result != nil {
		for _, remark := range result.Remarks {
			fmt.Fprintf(os.Stderr, "%s\n", remark)
		}
		fmt.Fprintf(os.Stderr, "jeoul: %s: services: %d\n", source.Name, result.Services)
	}
	if err != nil {
		return err
	}
	return printConverted(result.Text, result.Left)
}

// read returns the configuration; if it is too large, its beginning.
func (c exportCmd) read() (config.Source, error) {
	name, from := c.File, io.Reader(os.Stdin)
	if c.File == "-" {
		name = "stdin"
	} else {
		file, err := os.Open(c.File)
		if err != nil {
			return config.Source{}, err
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, config.MaxBytes+1))
	if err != nil {
		return config.Source{}, fmt.Errorf("read %s: %w", name, err)
	}
	return config.Source{Name: name, Data: data}, nil
}
