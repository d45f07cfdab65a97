// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// importCmd converts the configuration of another balancer.
type importCmd struct {
	Dialect   string       `arg:"" enum:"${dialects}" placeholder:"DIALECT" help:"The format of the file: one of ${enum}."`
	File      string       `arg:"" placeholder:"FILE" help:"The file; - is standard input."`
	Interface []string     `name:"interface" placeholder:"NAME" help:"Interface that packets arrive on; may be repeated. By default those that the file names."`
	VIP       []netip.Addr `name:"vip" placeholder:"ADDRESS" help:"VIP of services that the file has listen on every address; may be repeated, for the other family."`
	Source    []netip.Addr `name:"source" placeholder:"ADDRESS" help:"Address of this host that the mode fullnat sends from; may be repeated."`
	Mode      string       `name:"mode" enum:",${modes}" default:"" placeholder:"MODE" help:"Mode of all services, in place of the closest to what the file says: one of ${modes}."`
	HTTPAsTCP bool         `name:"http-as-tcp" help:"Balance connections where the file has requests balanced, and asks for nothing else that needs a proxy."`
	Resolve   bool         `name:"resolve" help:"Look up the names of hosts, once; by default they are left out."`
}

// exitLeftOut is the exit status where something could not be carried over.
const exitLeftOut = 3

// leftOutError holds the number of lines that could not be carried over.
type leftOutError int

func (n leftOutError) Error() string {
	return fmt.Sprintf("left out: %d; the remarks say why, and what to do", int(n))
}

// ExitCode distinguishes a file of which something was left out from a file that cannot be read.
func (leftOutError) ExitCode() int { return exitLeftOut }

// Help describes the output and the exit status.
func (importCmd) Help() string {
	return `Prints the configuration, and on standard error a line for each line of the file that is left out, is
approximated or is not needed, with the reason and what to do. The exit status is 0 where nothing
is left out, 3 where something is, and 1 where the file cannot be read.

    ipvsadm-save -n | jeoul import ipvsadm - --interface eth0 > jeoul.yaml`
}

// Run prints the configuration, and the remarks on it.
func (c importCmd) Run(ctx context.Context) error {
	file, err := c.read()
	if err != nil {
		return err
	}
	result, err := importer.Import(c.Dialect, file, c.options(ctx))
	if result != nil {
		for _, remark := range result.Remarks {
			fmt.Fprintf(os.Stderr, "%s\n", remark)
		}
		fmt.Fprintf(os.Stderr, "jeoul: %s: services: %d, lines carried over: %d\n", file.Name, result.Services,
			len(result.Carried))
	}
	if err != nil {
		return err
	}
	return printConverted(result.Text, result.Left)
}

// printConverted prints a configuration in another language. Its error holds the number of parts that were left out.
func printConverted(text []byte, left int) error {
	if _, err := os.Stdout.Write(text); err != nil {
		return err
	}
	if left > 0 {
		return leftOutError(left)
	}
	return nil
}

// read returns the file, or standard input.
func (c importCmd) read() (draft.File, error) {
	if c.File != "-" {
		return readBounded(c.File)
	}
	data, err := io.ReadAll(io.LimitReader(os.Stdin, draft.MaxBytes+1))
	if err != nil {
		return draft.File{}, fmt.Errorf("read standard input: %w", err)
	}
	return draft.File{Name: "stdin", Data: data}, nil
}

// readBounded returns a file; if it is too large, its beginning.
func readBounded(path string) (draft.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return draft.File{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, draft.MaxBytes+1))
	return draft.File{Name: path, Data: data}, err
}

// options returns the settings that the file cannot have.
func (c importCmd) options(ctx context.Context) draft.Options {
	options := draft.Options{Interfaces: c.Interface, VIPs: c.VIP, Sources: c.Source, Mode: lb.Mode(c.Mode),
		HTTPAsTCP: c.HTTPAsTCP}
	if c.Resolve {
		options.Resolve = func(name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if c.File != "-" {
		options.Include = func(pattern string) ([]draft.File, error) { return included(filepath.Dir(c.File), pattern) }
	}
	return options
}

// included returns the files that a pattern names, relative to a directory.
func included(dir, pattern string) ([]draft.File, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(dir, pattern)
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("include %s: %w", pattern, err)
	}
	var files []draft.File
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() { // a device or a pipe may have no end
			return nil, errors.Join(fmt.Errorf("include %s: it is no file", path), err)
		}
		file, err := readBounded(path)
		if err != nil {
			return nil, fmt.Errorf("include %s: %w", path, err)
		}
		files = append(files, file)
	}
	return files, nil
}
