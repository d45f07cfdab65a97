// SPDX-License-Identifier: Apache-2.0

// Package weighcmd has the commands that weigh: bench, wire, report and try. They are flags and wiring; their work is
// done by the packages below internal/weigh.
package weighcmd
