// SPDX-License-Identifier: Apache-2.0

package nearest

import "testing"

func TestWord(t *testing.T) {
	names := []string{"scheduler", "services", "mode"}
	for word, want := range map[string]string{
		"sheduler": "scheduler", "Scheduler": "scheduler", "servces": "services", "mdoe": "mode",
		"xml": "", "moderator": "", "": "",
	} {
		if got := Word(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Word("service", nil); got != "" {
		t.Errorf("of no names: %q", got)
	}
}
