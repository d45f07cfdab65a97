// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/host/durable"
)

// validateTimeout is how long HAProxy may take to check a configuration: it reads every certificate.
const validateTimeout = time.Minute

// validate has HAProxy check a configuration in a directory of its own: among temporary files or, if those have no
// room, beside the running configuration, so that a full temporary file system does not prevent a change.
func validate(ctx context.Context, d Desired, h Host, c *candidate) error {
	err := validateIn(ctx, os.TempDir(), d, h, c)
	if durable.Unwritable(err) {
		return validateIn(ctx, filepath.Dir(h.Dir), d, h, c)
	}
	return err
}

// validateIn is validate with a directory below another.
func validateIn(ctx context.Context, parent string, d Desired, h Host, c *candidate) error {
	dir, err := os.MkdirTemp(parent, "jeoul-proxy-")
	if err != nil {
		return fmt.Errorf("making a directory for HAProxy to check a configuration: %w", err)
	}
	defer os.RemoveAll(dir)
	trial := *c
	if trial.rendering, err = Render(d, Host{Dir: dir, Root: h.Root, NonlocalBind: h.NonlocalBind}); err != nil {
		return err
	}
	if err := trial.extras(); err != nil {
		return err
	}
	at := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(at, []byte(trial.rendering.String()), 0o600); err != nil {
		return fmt.Errorf("writing the configuration that HAProxy is to check: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program.path, "-c", "-f", at)
	cmd.Env = environment()
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("having HAProxy check the configuration: %w", ctx.Err())
	case !errors.As(err, &exit):
		return fmt.Errorf("having %s check the configuration: %v", c.program.path, err)
	}
	return trial.rendering.parseRefusal(at, string(output))
}

// alerts matches an error of HAProxy's, with the line of the file if it names one: "[ALERT] (123) : config : parsing
// [/path:12] : the error".
var alerts = regexp.MustCompile(`^\[ALERT\]\s+\(\d+\) : (?:config : )?(.*)$`)

// parseRefusal returns the first alert in HAProxy's output about the configuration at a path, with the place of its
// line.
func (r *Rendering) parseRefusal(path, output string) error {
	var first string
	var from place
	for text := range strings.Lines(output) {
		found := alerts.FindStringSubmatch(strings.TrimRight(text, "\n"))
		if found == nil {
			continue
		}
		why, at := found[1], place{}
		if rest, ok := strings.CutPrefix(why, "parsing ["+path+":"); ok {
			number, after, _ := strings.Cut(rest, "]")
			n, _ := strconv.Atoi(number)
			at, why = r.placeOf(n), strings.TrimLeft(after, " :")
		} else if p, ok := r.sectionPlace(why); ok {
			at = p
		}
		if first == "" || from == (place{}) && at != (place{}) {
			first, from = why, at
		}
	}
	if first == "" {
		first = strings.TrimSpace(output)
	}
	return from.wrap(fmt.Errorf("%w: %s", ErrRefused, oneLine(first)))
}

// sectionNames matches the name of a section in an error that names no line.
var sectionNames = regexp.MustCompile(`[0-9a-f.:]+_\d+\.(?:clients|all|route\d+)`)

// sectionPlace returns the place of the section that an error names.
func (r *Rendering) sectionPlace(why string) (place, bool) {
	name := sectionNames.FindString(why)
	if name == "" {
		return place{}, false
	}
	for i, b := range r.Blocks {
		for j, text := range b.Lines {
			if fields := strings.Fields(text); len(fields) == 2 && fields[1] == name && i < len(r.from) {
				return place{service: r.from[i][j].service}, true
			}
		}
	}
	return place{}, false
}

// oneLine returns an error's text in one line, shortened.
func oneLine(text string) string {
	const most = 600
	text = strings.Join(strings.Fields(printableComment(text)), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
