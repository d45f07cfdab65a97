// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// scrolledServices with scrolledBackends each are shown at once.
	scrolledServices, scrolledBackends = 20, 500
	// maxRows is the greatest number of rows of the table that may exist at once, in a window of 900 pixels.
	maxRows = 100
)

// scrollThrough scrolls down and up for 20 seconds, a third of a window per frame, and returns the durations of the
// frames.
const scrollThrough = `new Promise((resolve) => {
	const gaps = [];
	let before = performance.now(), step = 300, rows = 0;
	const end = before + 20000;
	const frame = (now) => {
		gaps.push(now - before);
		before = now;
		rows = Math.max(rows, document.querySelectorAll(".grid-body .grid-row").length);
		if (now > end) {
			gaps.sort((a, b) => a - b);
			const at = (part) => gaps[Math.floor(part * (gaps.length - 1))];
			resolve({ Frames: gaps.length, Median: at(0.5), P99: at(0.99), Longest: at(1), Over100: gaps.filter((g) => g > 100).length, Rows: rows,
				HeapMB: performance.memory.usedJSHeapSize / 1e6, Elements: document.querySelectorAll("*").length });
			return;
		}
		const top = scrollY;
		scrollBy(0, step);
		if (scrollY === top) step = -step;
		requestAnimationFrame(frame);
	};
	requestAnimationFrame(frame);
})`

// TestScrollingMeasured measures how 10,000 backends scroll in the dashboard, and the page's memory after minutes.
func TestScrollingMeasured(t *testing.T) {
	file := measured(t, "scrolling.txt")
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	b := newBalancer(t, l.Balancer)
	b.configure(t, lb.HookTC, entry{"services": manyServices(t, l, scrolledServices, scrolledBackends)})
	b.startBuilt(t)
	b.eventually(t, "every backend is up", allUp)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	status := b.status(t)
	took := time.Since(began)
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file,
		"# make bench-watch: %d services of %d backends, all open in headless Chromium (software rendering). Load before: %s"+
			"GET /v1/status: %.2f MB in %v\n", scrolledServices, scrolledBackends, load, float64(len(text))/1e6,
		took.Round(time.Millisecond))
	tab := openDashboard(t, startDashboard(t, cmdkit.DaemonFlags{Socket: b.socket}))
	tab.Click(`[data-act="open-all"]`)
	tab.Until("all backends are there",
		fmt.Sprintf(`document.querySelector(".grid").getAttribute("aria-rowcount") > %d`,
			scrolledServices*scrolledBackends))
	for range 4 {
		var f struct {
			Frames, Over100, Rows, Elements int
			Median, P99, Longest, HeapMB    float64
		}
		if err := json.Unmarshal(tab.Eval(scrollThrough), &f); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(file,
			"20 s of scrolling: %d frames, median %.0f ms, 99 %% within %.0f ms, longest %.0f ms, %d above 100 ms; at most %d rows exist; %d elements, heap %.0f MB\n",
			f.Frames, f.Median, f.P99, f.Longest, f.Over100, f.Rows, f.Elements, f.HeapMB)
		if f.Rows > maxRows {
			t.Errorf("%d rows exist at once, want at most %d", f.Rows, maxRows)
		}
	}
}
