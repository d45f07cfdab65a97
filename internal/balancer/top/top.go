// SPDX-License-Identifier: Apache-2.0

// Package top shows a running balancer live on a terminal: services, backends, drops and balancers as tables that are
// read again twice a second, with rates from the counters, and operations on the selected backend. The model does no
// I/O and reads no clock: commands bring readings, and messages bring the time.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
)

// The least interval between readings, and the default.
const (
	MinInterval     = 100 * time.Millisecond
	DefaultInterval = 500 * time.Millisecond
)

// Run shows the balancer on a terminal until the user quits or the context ends. environment is as os.Environ has it.
func Run(ctx context.Context, options Options, in io.Reader, out io.Writer, environment []string) error {
	model, err := New(options)
	if err != nil {
		return err
	}
	model.ctx = ctx
	program := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithEnvironment(environment), tea.WithoutSignalHandler())
	_, err = program.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// Dumb reports whether a terminal cannot place text on its screen.
func Dumb() bool { term := os.Getenv("TERM"); return term == "" || term == "dumb" }

// UTF8 reports whether the terminal shows UTF-8, as the locale in the environment has it.
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := os.Getenv(name); value != "" {
			return namesUTF8(value)
		}
	}
	return false
}
