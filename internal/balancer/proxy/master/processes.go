// SPDX-License-Identifier: Apache-2.0

package master

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Processes are the processes of a master.
type Processes struct {
	// Master is its number, Reloads how many it has made since it began, and Failed how many of the last ones did
	// not succeed.
	Master, Reloads, Failed int
	// Workers take new connections, and Old have been replaced and end with theirs.
	Workers, Old []int
}

// Processes asks which there are.
func (s Socket) Processes(ctx context.Context) (Processes, error) {
	answer, err := s.Command(ctx, "show proc")
	if err != nil {
		return Processes{}, err
	}
	return ParseProcesses(answer)
}

// ParseProcesses reads the answer to "show proc" (management guide, section 9.4.1).
func ParseProcesses(answer string) (p Processes, err error) {
	old := false
	for text := range strings.Lines(answer) {
		text = strings.TrimSpace(text)
		if rest, isHeading := strings.CutPrefix(text, "#"); isHeading {
			old = strings.TrimSpace(rest) == "old workers"
			continue
		}
		fields := strings.Fields(text)
		if len(fields) < 3 {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil || pid <= 0 {
			return Processes{}, fmt.Errorf("%w: %q is no line of a process", ErrAnswer, text)
		}
		switch {
		case fields[1] == "master":
			p.Master = pid
			if p.Reloads, p.Failed, err = parseReloads(fields[2:]); err != nil {
				return Processes{}, fmt.Errorf("%w: %q: %v", ErrAnswer, text, err)
			}
		case fields[1] == "worker" && old:
			p.Old = append(p.Old, pid)
		case fields[1] == "worker":
			p.Workers = append(p.Workers, pid)
		}
	}
	if p.Master == 0 {
		return Processes{}, fmt.Errorf("%w: no master in %q", ErrAnswer, answer)
	}
	return p, nil
}

// parseReloads reads "5" or "5 [failed: 1]".
func parseReloads(fields []string) (all, failed int, err error) {
	if all, err = strconv.Atoi(fields[0]); err != nil {
		return 0, 0, err
	}
	if len(fields) > 2 && fields[1] == "[failed:" {
		failed, err = strconv.Atoi(strings.TrimSuffix(fields[2], "]"))
	}
	return all, failed, err
}
