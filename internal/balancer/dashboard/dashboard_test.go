// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// maxBytes is how large the page may be with all of its files, compressed.
const maxBytes = 300 << 10

// nextHandler answers all requests but those for the page.
var nextHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "behind "+r.URL.Path)
})

func get(handler http.Handler, path string, change func(*http.Request)) *http.Response {
	request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:9"+path, nil)
	if change != nil {
		change(request)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

// TestFilesAreServed: each file has a type and the policy, is the same compressed, and all of them are small.
func TestFilesAreServed(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	handler := Handler(nextHandler)
	for path, f := range all {
		total += len(f.gzipped)
		response := get(handler, path, nil)
		plain, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Security-Policy") != contentSecurityPolicy ||
			response.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %s, %v", path, response.Status, response.Header)
		}
		zipped := get(handler, path, func(r *http.Request) { r.Header.Set("Accept-Encoding", "br, gzip") })
		reader, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if text, err := io.ReadAll(reader); err != nil || string(text) != string(plain) {
			t.Errorf("%s is another file when it is compressed: %v", path, err)
		}
		same := get(handler, path, func(r *http.Request) { r.Header.Set("If-None-Match", f.tag) })
		if same.StatusCode != http.StatusNotModified {
			t.Errorf("%s, which the browser has: %s", path, same.Status)
		}
	}
	if total > maxBytes {
		t.Errorf("the page has %d bytes, compressed; at most %d", total, maxBytes)
	}
	t.Logf("%d files, %d bytes compressed", len(all), total)
}

// TestNothingInline: the page's text has no script, style or handler in it, which the policy would not run, and names
// files that there are.
func TestNothingInline(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	text := string(all["/"].plain)
	for _, bad := range []string{`<script>`, `<style`, ` style=`, ` onclick`, ` onload`, `javascript:`} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, found := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(text, -1) {
		if _, there := all[found[1]]; !there {
			t.Errorf("the page names %s, which there is not", found[1])
		}
	}
	for path, f := range all {
		if strings.HasSuffix(path, ".js") && !strings.Contains(path, "/uplot/") &&
			regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(`).Match(f.plain) {
			t.Errorf("%s makes markup or code of text", path)
		}
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	handler := Handler(nextHandler)
	for path, want := range map[string]string{"/v1/status": "behind /v1/status", "/dashboard": "behind /dashboard",
		"/index.html": "behind /index.html"} {
		response := get(handler, path, nil)
		if text, _ := io.ReadAll(response.Body); string(text) != want {
			t.Errorf("%s answers %q, want %q", path, text, want)
		}
	}
	if response := get(handler, Folder+"none.js", nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("a file that there is not: %s", response.Status)
	}
	if response := get(handler, "/", func(r *http.Request) {
		r.Method = http.MethodPost
	}); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %s", response.Status)
	}
}

// TestLocalLetsOneUserIn: only requests with the token, for this host and of no other page reach the API.
func TestLocalLetsOneUserIn(t *testing.T) {
	handler := Local(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}, "secret", nextHandler)
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Method = http.MethodPost
			r.Header.Set("Authorization", "Bearer secret")
			if name == "Host" {
				r.Host = value
			} else {
				r.Header.Set(name, value)
			}
		}
	}
	for name, test := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"the page":          {"/", nil, http.StatusOK},
		"the page, rebound": {"/", with("Host", "evil.example:9"), http.StatusMisdirectedRequest},
		"the token":         {"/v1/status", with("Sec-Fetch-Site", "same-origin"), http.StatusOK},
		"by its other name": {"/v1/status", with("Host", "localhost:9"), http.StatusOK},
		"no token":          {"/v1/status", nil, http.StatusUnauthorized},
		"a cookie": {"/v1/status", func(r *http.Request) { r.Header.Set("Cookie", "token=secret") },
			http.StatusUnauthorized},
		"in the address":        {"/v1/status?token=secret", nil, http.StatusUnauthorized},
		"a wrong token":         {"/v1/status", with("Authorization", "Bearer secreT"), http.StatusUnauthorized},
		"another scheme":        {"/v1/status", with("Authorization", "Basic secret"), http.StatusUnauthorized},
		"rebound":               {"/v1/status", with("Host", "evil.example:9"), http.StatusMisdirectedRequest},
		"another port":          {"/v1/status", with("Host", "127.0.0.1:10"), http.StatusMisdirectedRequest},
		"of another page":       {"/v1/status", with("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"of another page's old": {"/v1/status", with("Origin", "http://127.0.0.1:10"), http.StatusForbidden},
	} {
		if response := get(handler, test.path, test.change); response.StatusCode != test.want {
			t.Errorf("%s: %s, want %d", name, response.Status, test.want)
		}
	}
}
