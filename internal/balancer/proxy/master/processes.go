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
	// Master is the master's PID, Reloads the number of reloads since its start, and Failed the number of the last ones
	// that failed.
	Master, Reloads, Failed int
	// Workers accept new connections; Old have been replaced, and end with their last connection.
	Workers, Old []int
}

// Processes asks the master for its processes.
func (s Socket) Processes(ctx context.Context) (Processes, error) {
	answer, err := s.Command(ctx, "show proc")
	if err != nil {
		return Processes{}, err
	}
	return ParseProcesses(answer)
}

// ParseProcesses reads the answer to "show proc" (management guide, section 9.4.1). The first of Old has been replaced
// last.
func ParseProcesses(answer string) (p Processes, err error) {
	old, leastReloads := false, 0
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
			reloads, err := strconv.Atoi(fields[2])
			if err != nil {
				return Processes{}, fmt.Errorf("%w: %q: %v", ErrAnswer, text, err)
			}
			if len(p.Old) == 0 || reloads < leastReloads {
				p.Old, leastReloads = append([]int{pid}, p.Old...), reloads
				continue
			}
			p.Old = append(p.Old, pid)
		case fields[1] == "worker":
			p.Workers = append(p.Workers, pid)
		}
	}
	if p.Master == 0 {
		return Processes{}, fmt.Errorf("%w: no master in %q", ErrAnswer, answer)
	}
	if len(p.Workers) == 0 && len(p.Old) > 0 {
		// From 3.1 on, a reload that failed leaves the worker that serves on among the old ones. It has been there for
		// the least number of reloads.
		p.Workers, p.Old = p.Old[:1:1], p.Old[1:]
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
