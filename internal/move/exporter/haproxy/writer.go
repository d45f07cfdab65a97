// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/exporter/ledger"
)

// writer writes one service.
type writer struct {
	*ledger.Ledger
	i       int
	service lb.Service
	// proxy has the settings of a service in mode proxy, and is empty for other services.
	proxy *lb.Proxy
	text  *strings.Builder
	// external: a check runs a program.
	external bool
}

// line writes a line of the section, and quotes words where needed.
func (w *writer) line(words ...string) {
	w.text.WriteByte('\t')
	w.text.WriteString(quoted(words))
	w.text.WriteByte('\n')
}

// section begins a section.
func (w *writer) section(kind, name string) {
	fmt.Fprintf(w.text, "%s %s\n", kind, name)
	if w.speaksHTTP() {
		w.line("mode", "http")
	}
}

// duration writes a length of time, rounded up to milliseconds.
func duration(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", (d+time.Millisecond-1)/time.Millisecond)
}

// speaksHTTP reports whether HAProxy parses HTTP requests for the service.
func (w *writer) speaksHTTP() bool { return w.proxy.Speaks == lb.SpeaksHTTP }
