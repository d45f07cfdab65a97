// SPDX-License-Identifier: Apache-2.0

// Package weighcmd holds the commands that measure: bench, wire, report and try. They are flags and wiring; the
// packages below internal/weigh do their work.
package weighcmd
