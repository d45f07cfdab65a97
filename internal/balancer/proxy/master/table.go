// SPDX-License-Identifier: Apache-2.0

package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// StickTable is the table of persistent clients: the server's number by the client's address.
type StickTable map[netip.Addr]uint32

// ReadTable returns the table of a section.
func (s Socket) ReadTable(ctx context.Context, pid int, section string) (StickTable, error) {
	answer, err := s.WorkerCommand(ctx, pid, "show table "+section)
	if err != nil {
		return nil, err
	}
	return ParseTable(answer)
}

// ParseTable reads the answer to "show table" of a table whose keys are addresses. Entries without a server are left
// out.
func ParseTable(answer string) (StickTable, error) {
	if !strings.HasPrefix(answer, "# table: ") {
		return nil, fmt.Errorf("%w: it does not begin with the table's name: %.80q", ErrAnswer, answer)
	}
	all := StickTable{}
	for text := range strings.Lines(answer) {
		var key netip.Addr
		var server uint64
		for _, field := range strings.Fields(text) {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "key":
				key, _ = netip.ParseAddr(value)
			case "server_id":
				server, _ = strconv.ParseUint(value, 10, 32)
			}
		}
		if key.IsValid() && server > 0 {
			all[key] = uint32(server)
		}
	}
	return all, nil
}

// maxCommandBytes is how many bytes of commands are sent at once: HAProxy reads a line of them into one of its buffers.
const maxCommandBytes = 8 << 10

// WriteTable writes clients into the table of a section, many by a command.
func (s Socket) WriteTable(ctx context.Context, pid int, section string, clients StickTable) error {
	var line strings.Builder
	send := func() error {
		if line.Len() == 0 {
			return nil
		}
		answer, err := s.exchange(ctx, "set table "+section,
			fmt.Sprintf("@!%d;%s\n", pid, strings.TrimSuffix(line.String(), ";")))
		line.Reset()
		if answer = strings.TrimSpace(answer); err == nil && answer != "" {
			err = fmt.Errorf("%w %q: %.200s", ErrCommand, "set table "+section, answer)
		}
		return err
	}
	var failed error
	for client, server := range clients {
		fmt.Fprintf(&line, "set table %s key %s data.server_id %d;", section, client, server)
		if line.Len() > maxCommandBytes {
			failed = errors.Join(failed, send())
		}
		if failed != nil {
			return failed
		}
	}
	return send()
}
