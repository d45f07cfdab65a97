// SPDX-License-Identifier: Apache-2.0

// Package terminal distinguishes terminals from other files, and writes log lines for users.
package terminal

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/sys/unix"
)

// Is reports whether a file is a terminal.
func Is(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// NewLogger returns a logger that writes lines for users to a file, in colour on a terminal.
func NewLogger(to *os.File) *slog.Logger {
	return slog.New(tint.NewTextHandler(to, &tint.Options{TimeFormat: time.DateTime, NoColor: !Is(to)}))
}
