// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/tools/tune"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// tuneCheckTask lists the settings of a host that matter and are not as `jeoul tune` wants them.
var tuneCheckTask = lab.NewTask("tune-check", func(_ context.Context, h *lab.Host, as hostTuning) ([]string, error) {
	var found []string
	err := h.Do(func() error {
		tuner, err := tune.New(tune.Options{Role: as.Role, Mode: as.Mode, Interfaces: []string{h.Interface}})
		if err != nil {
			return err
		}
		defer tuner.Close()
		for _, f := range tuner.Check().Deviations() {
			found = append(found, fmt.Sprintf("%s %s (wanted: %s)", f.Item, f.Now, f.Wanted))
		}
		return nil
	})
	return found, err
})

// checkHosts holds every host against the profile of its role, and returns notes for a reader of the figures: a line
// for each role whose hosts differ alike.
//
// Direct server return's own settings are left out: subjects that need them make
// them, and take them back.
func (r *Runner) checkHosts(ctx context.Context) []string {
	mode := "nat"
	if slices.ContainsFunc(r.Form.Subjects, func(s Subject) bool { return tuneMode(s.Name) == tune.ModeProxy }) {
		mode = tune.ModeProxy
	}
	var lines []string
	hosts := map[string][]string{}
	for _, h := range r.tunedHosts() {
		found, err := tuneCheckTask.On(ctx, h.host, hostTuning{Role: h.role, Mode: mode})
		line := strings.Join(found, ", ")
		if err != nil {
			line = fmt.Sprintf("it could not be looked at: %v", err)
		}
		if line == "" {
			continue
		}
		if hosts[line] == nil {
			lines = append(lines, line)
		}
		hosts[line] = append(hosts[line], h.host.Name)
	}
	if len(lines) == 0 {
		return []string{"`jeoul tune check` found nothing on any host that matters"}
	}
	var notes []string
	for _, line := range lines {
		notes = append(notes, fmt.Sprintf("`jeoul tune check` on %s: %s", fromTo(hosts[line]), line))
	}
	return notes
}

// fromTo names hosts that follow each other by the first and the last.
func fromTo(names []string) string {
	if len(names) < 3 {
		return strings.Join(names, " and ")
	}
	return fmt.Sprintf("%s to %s (%d)", names[0], names[len(names)-1], len(names))
}
