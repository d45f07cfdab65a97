// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// everything needs all rights that there are.
var everything = Needed{LeaseNamespace: "jeoul-system", Lease: "jeoul-jeoul.io-balancer",
	PoolsNamespace: "jeoul-system", Gateways: true, Certificates: true}

// TestMissing: a right that the account lacks is named, with its resource and namespace.
func TestMissing(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
			asked := review.Spec.ResourceAttributes
			review.Status.Allowed = asked.Subresource != "status" && asked.Resource != "leases"
			return true, review, nil
		})
	missing, err := Missing(t.Context(), client, Needed{LeaseNamespace: "here", Lease: "lease"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range missing {
		got = append(got, r.String())
	}
	want := []string{"patch services/status", "get leases.coordination.k8s.io in namespace here",
		"create leases.coordination.k8s.io in namespace here", "update leases.coordination.k8s.io in namespace here"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestManifestsGrantWhatIsNeeded: the roles that are deployed have each right that is asked for, and no other.
func TestManifestsGrantWhatIsNeeded(t *testing.T) {
	granted := map[string]bool{}
	for _, path := range []string{"rbac.yaml", "gateway/rbac.yaml", "gateway/certificates.yaml"} {
		for _, rule := range rulesOf(t, "../../../../deploy/kubernetes/"+path) {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					granted[verb+" "+resource+"."+rule.APIGroups[0]] = true
				}
			}
		}
	}
	for _, r := range everything.List() {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		key := r.Verb + " " + resource + "." + r.Group
		if !granted[key] {
			t.Errorf("the manifests do not grant %s", r)
		}
		delete(granted, key)
	}
	// Events of one kind are counted in the first of them.
	delete(granted, "patch events.events.k8s.io")
	for key := range granted {
		t.Errorf("the manifests grant %s, which nothing needs", key)
	}
}

// rulesOf returns the rules of all roles of a file.
func rulesOf(t *testing.T, path string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return rules
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		rules = append(rules, role.Rules...)
	}
}
