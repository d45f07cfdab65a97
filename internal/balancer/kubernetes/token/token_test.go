// SPDX-License-Identifier: Apache-2.0

package token

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestFollow: a token that is put into the kubeconfig while the program runs is used after the API server refused the
// one before; a file that is half written changes nothing.
func TestFollow(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"major": "1", "minor": "36"}`)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(user string) { // as deploy/kubernetes/kubeconfig.sh does
		t.Helper()
		text := `apiVersion: v1
kind: Config
clusters:
  - {name: cluster, cluster: {"server": "` + server.URL + `", "insecure-skip-tls-verify": true}}
users:
  - {name: jeoul-balancer, user: ` + user + `}
contexts:
  - {name: cluster, context: {cluster: cluster, user: jeoul-balancer}}
current-context: cluster
`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{token: "old"}`)
	reach, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	Follow(reach, path)
	client, err := kubernetes.NewForConfig(reach)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{`{token: "old"}`, `{token: "ol`, `{}`, `{token: "new"}`} {
		write(user)
		if _, err := client.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
			t.Fatalf("the old token, with %s in the file: %v; want an Unauthorized", user, err)
		}
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("the new token is not used: %v", err)
	}
}
