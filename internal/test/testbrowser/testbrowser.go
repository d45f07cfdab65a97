// SPDX-License-Identifier: Apache-2.0

// Package testbrowser shows pages in a headless Chromium, for tests.
package testbrowser

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// pageTimeout limits every wait for a page.
const pageTimeout = 2 * time.Minute

// Tab is a page in its own browser, which ends with the test.
type Tab struct {
	tb  testing.TB
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// Open starts a browser and shows a page. The browser accepts certificates of tests permanently.
func Open(tb testing.TB, url string) *Tab {
	tb.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(testenv.Program(tb, "chromium")),
		chromedp.NoSandbox, // Chromium's sandbox does not run as root
		chromedp.IgnoreCertErrors, chromedp.WSURLReadTimeout(pageTimeout), chromedp.WindowSize(1440, 900))
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(tb.Context()), options...)
	tb.Cleanup(end)
	t := &Tab{tb: tb}
	ctx, stop := chromedp.NewContext(allocator, chromedp.WithListener(t.note))
	tb.Cleanup(stop)
	t.ctx = ctx
	do(t, chromedp.Navigate(url))
	return t
}

// note records the page's faults: exceptions, and violations of its content security policy.
func (t *Tab) note(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		t.add(text)
	case *log.EventEntryAdded:
		// Network errors are a part of the tests.
		if e.Entry.Source != "network" {
			t.add(fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

// add records a fault, unless it is recorded already.
func (t *Tab) add(fault string) {
	if !slices.Contains(t.faults, fault) && len(t.faults) < 10 {
		t.faults = append(t.faults, fault)
	}
}

// Faults returns the page's recorded faults.
func (t *Tab) Faults() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.faults...)
}

// do runs an action in the browser, with a timeout. A tab lives as long as the context of its first action, so that
// context has no timeout.
func do[T any](t *Tab, action chromedp.Action[T]) (value T) {
	t.tb.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := chromedp.Run(t.ctx, action)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			t.tb.Fatalf("the browser: %v", r.err)
		}
		return r.value
	case <-time.After(pageTimeout):
		t.tb.Fatalf("the browser does not answer within %s; the page has done wrong: %q", pageTimeout, t.Faults())
	}
	return value
}

// Eval returns the value of a JavaScript expression as JSON. For a promise it returns the result.
func (t *Tab) Eval(expression string) []byte {
	t.tb.Helper()
	return do(t, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
}

// Until waits until an expression is true, and evaluates it whenever the page changes.
func (t *Tab) Until(what, expression string) {
	t.tb.Helper()
	// Changes of attributes and text count as changes. Focus does not, so it is polled.
	const wait = `new Promise((resolve) => {
		const holds = () => { try { return Boolean(%s); } catch { return false; } };
		if (holds()) { resolve('yes'); return; }
		let timer;
		const end = (answer) => { observer.disconnect(); clearInterval(timer); resolve(answer); };
		const look = () => { if (holds()) end('yes'); };
		const observer = new MutationObserver(look);
		observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
		timer = setInterval(look, 250);
		setTimeout(() => end('no: ' + document.body.innerText.slice(0, 3000)), %d);
	})`
	answer := do(t, chromedp.Evaluate[string](fmt.Sprintf(wait, expression,
		(pageTimeout-10*time.Second).Milliseconds()),
		chromedp.EvalAwaitPromise))
	if answer != "yes" {
		t.tb.Fatalf("it did not come to be that %s (%s); the page has done wrong: %q; it says %s", what, expression,
			t.Faults(), answer)
	}
}

// Click clicks on the first element that matches a selector.
func (t *Tab) Click(selector string) {
	t.tb.Helper()
	t.Until("there is "+selector, fmt.Sprintf("document.querySelector(%q)", selector))
	do(t, chromedp.Click(chromedp.CSS(selector)))
}

// Type types into the first element that matches a selector, as a user would, and replaces its text.
func (t *Tab) Type(selector, text string) {
	t.tb.Helper()
	t.Until("there is "+selector, fmt.Sprintf("document.querySelector(%q)", selector))
	t.Eval(fmt.Sprintf("document.querySelector(%q).value = ''", selector))
	do(t, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Key presses keys as a user would.
func (t *Tab) Key(keys string) {
	t.tb.Helper()
	do(t, chromedp.KeyEvent(keys))
}

// Window sets the window's size, in CSS pixels, and emulates a dark or a light colour scheme.
func (t *Tab) Window(width, height int, dark bool) {
	t.tb.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	do(t, chromedp.EmulateViewport(int64(width), int64(height)))
	do(t, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	})
}

// Freeze stops the page, as browsers do with tabs that were not used for long. Thaw continues it.
func (t *Tab) Freeze() { t.tb.Helper(); t.lifecycle(page.SetWebLifecycleStateStateFrozen) }

// Thaw ends the frozen state that Freeze began.
func (t *Tab) Thaw() { t.tb.Helper(); t.lifecycle(page.SetWebLifecycleStateStateActive) }

func (t *Tab) lifecycle(state page.SetWebLifecycleStateState) {
	t.tb.Helper()
	do(t, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: state})
	})
}

// Go shows another page.
func (t *Tab) Go(url string) {
	t.tb.Helper()
	do(t, chromedp.Navigate(url))
}

// Picture returns a screenshot of the window, as PNG.
func (t *Tab) Picture() []byte {
	t.tb.Helper()
	return do(t, chromedp.CaptureScreenshot())
}
