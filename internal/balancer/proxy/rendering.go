// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Rendering is a rendered configuration of HAProxy: lines, and apart from them the servers' parameters that can be
// changed at the runtime socket. It is saved as JSON, by which the next process knows the configuration of the running
// HAProxy.
type Rendering struct {
	Blocks []Block `json:"blocks"`
	// Files are the contents of further files that the lines name, by path. The path is derived from the content, so
	// that the files of a previous configuration stay.
	Files map[string]string `json:"files,omitempty"`
	// Certificates are those that clients are shown: the paths in the configuration, by those of the engine's copies.
	Certificates map[string]string `json:"certificates,omitempty"`
	// Authorities likewise are the files of authorities that vouch for backends.
	Authorities map[string]string `json:"authorities,omitempty"`
	// HardStop is how long a process that is replaced keeps its connections.
	HardStop time.Duration `json:"hard_stop_ns"`

	from [][]place
}

// Block is a section of the file, and its servers, whose lines come last.
type Block struct {
	Lines []string `json:"lines"`
	// Pool is the name of the section "backend"; empty: it is another section.
	Pool    string   `json:"pool,omitempty"`
	Servers []Server `json:"servers,omitempty"`
	// Persistent: it has a table of clients and their servers.
	Persistent bool `json:"remembers,omitempty"`
	// CookieKey is the key of servers' cookies; empty: they have none.
	CookieKey string `json:"cookie_key,omitempty"`
}

// Server is one of HAProxy's servers: a backend in one of its sections.
type Server struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	ID      uint32 `json:"id"`
	// Fixed are the parameters that commands cannot change, so that another server has to replace it: encryption, the
	// PROXY protocol.
	Fixed []string `json:"fixed,omitempty"`
	// Weight is 0 to maxWeight; with 0, only persistent clients are served. Off serves none.
	Weight uint32 `json:"weight"`
	Off    bool   `json:"off,omitempty"`
	// MaxConn bounds its concurrent connections; 0: no bound.
	MaxConn uint32 `json:"most,omitempty"`
	// EndsConnections: its connections are closed when it is turned off.
	EndsConnections bool `json:"ends,omitempty"`
}

// words returns the server's line.
func (s Server) words() []string {
	words := append([]string{"server", s.Name, s.Address, "id", strconv.FormatUint(uint64(s.ID), 10)}, s.settings()...)
	if s.Off {
		words = append(words, "disabled")
	}
	return words
}

// settings returns the words behind the address, without the id.
func (s Server) settings() []string {
	words := append(slices.Clone(s.Fixed), "weight", strconv.FormatUint(uint64(s.Weight), 10))
	if s.MaxConn > 0 {
		words = append(words, "maxconn", strconv.FormatUint(uint64(s.MaxConn), 10))
	}
	return words
}

// String returns the file.
func (r *Rendering) String() string {
	var file strings.Builder
	for _, b := range r.Blocks {
		for _, text := range b.Lines {
			file.WriteString(text + "\n")
		}
		for _, s := range b.Servers {
			file.WriteString("    " + strings.Join(quoteAll(s.words()), " ") + "\n")
		}
	}
	return file.String()
}

// quoteAll quotes words that were checked before.
func quoteAll(words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i], _ = quote(w)
	}
	return quoted
}

// placeOf returns where a line of the file, the first of which is 1, comes from.
func (r *Rendering) placeOf(number int) place {
	for i, b := range r.Blocks {
		whole := len(b.Lines) + len(b.Servers)
		if number > whole {
			number -= whole
			continue
		}
		if number >= 1 && i < len(r.from) && number <= len(r.from[i]) {
			return r.from[i][number-1]
		}
		break
	}
	return place{}
}

// addBlock makes a block of lines, and adds it.
func (r *Rendering) addBlock(t *sectionWriter, b Block, serversFrom []place) {
	var from []place
	for _, l := range t.lines {
		b.Lines, from = append(b.Lines, l.text), append(from, l.from)
	}
	r.Blocks, r.from = append(r.Blocks, b), append(r.from, append(from, serversFrom...))
}

// endpoint returns a name that HAProxy accepts for an address and port, which identifies the counts.
func endpoint(address netip.Addr, port uint16) string {
	return fmt.Sprintf("%s_%d", address.WithZone(""), port)
}

// parseEndpoint parses the text that endpoint has written.
func parseEndpoint(name string) (address netip.Addr, port uint16, err error) {
	before, after, _ := strings.Cut(name, "_")
	if address, err = netip.ParseAddr(before); err != nil {
		return address, 0, err
	}
	number, err := strconv.ParseUint(after, 10, 16)
	return address, uint16(number), err
}

// Names of HAProxy's sections for a service, behind its endpoint.
const (
	clientsOf = ".clients"
	allOf     = ".all"
	routeOf   = ".route"
)

func serviceName(k lb.ServiceKey) string { return endpoint(k.VIP, k.Port) }
