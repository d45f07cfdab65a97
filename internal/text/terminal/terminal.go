// SPDX-License-Identifier: Apache-2.0

// Package terminal tells terminals from other files, and writes log lines for the person at one.
package terminal

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/sys/unix"
)

// Is reports whether a file is a terminal, which a person reads.
func Is(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// NewLogger returns a logger that writes lines for a person to a file, in colour on a terminal.
func NewLogger(to *os.File) *slog.Logger {
	return slog.New(tint.NewTextHandler(to, &tint.Options{TimeFormat: time.DateTime, NoColor: !Is(to)}))
}
