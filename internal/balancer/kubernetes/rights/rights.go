// SPDX-License-Identifier: Apache-2.0

// Package rights checks whether an account of a cluster has the rights that it needs.
package rights

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Right is one verb on one resource.
type Right struct {
	Verb, Group, Resource string
	// Subresource is a part such as status; empty: the resource itself. Namespace is empty if the right is needed in
	// all namespaces, and Name if it is needed on every object.
	Subresource, Namespace, Name string
	// Purpose is the action that needs it, such as "write the status of Services".
	Purpose string
}

// String returns "patch services/status", with the group and the namespace where there are any.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// Needed selects the rights that the account needs.
type Needed struct {
	// LeaseNamespace and Lease name the Lease.
	LeaseNamespace, Lease string
	// PoolsNamespace is the namespace of the ConfigMap of the pools; empty: there is none.
	PoolsNamespace string
	// Gateways: those of the Gateway API are served. Certificates: with certificates.
	Gateways, Certificates bool
}

// List returns the rights.
func (n Needed) List() []Right {
	list := watchRights("", "services", "nodes")
	list = append(list, watchRights("discovery.k8s.io", "endpointslices")...)
	list = append(list,
		Right{Verb: "patch", Resource: "services", Subresource: "status", Purpose: "write the status of Services"},
		Right{Verb: "create", Group: "events.k8s.io", Resource: "events", Purpose: "make Events"})
	lease := Right{Group: "coordination.k8s.io", Resource: "leases", Namespace: n.LeaseNamespace,
		Purpose: "agree with other balancers on who writes status"}
	for _, verb := range []string{"get", "create", "update"} {
		lease.Verb, lease.Name = verb, n.Lease
		if verb == "create" { // RBAC cannot restrict create by name
			lease.Name = ""
		}
		list = append(list, lease)
	}
	if n.PoolsNamespace != "" {
		for _, r := range watchRights("", "configmaps") {
			r.Namespace, r.Purpose = n.PoolsNamespace, "read the pools"
			list = append(list, r)
		}
	}
	const group = "gateway.networking.k8s.io"
	if n.Gateways {
		kinds := []string{"gatewayclasses", "gateways", "tcproutes", "udproutes", "httproutes"}
		list = append(list, watchRights(group, append(slices.Clone(kinds), "referencegrants")...)...)
		list = append(list, watchRights("", "namespaces")...)
		for _, kind := range kinds {
			list = append(list, Right{Verb: "update", Group: group, Resource: kind, Subresource: "status",
				Purpose: "write the status of Gateways and routes"})
		}
	}
	if n.Certificates {
		list = append(list, watchRights("", "secrets")...)
	}
	return list
}

// watchRights returns the rights to follow kinds of objects.
func watchRights(group string, resources ...string) (list []Right) {
	for _, resource := range resources {
		for _, verb := range []string{"list", "watch"} {
			list = append(list, Right{Verb: verb, Group: group, Resource: resource, Purpose: "follow " + resource})
		}
	}
	return list
}

// Missing queries the API server for the rights that its client lacks, which every account may do.
func Missing(ctx context.Context, client kubernetes.Interface, needed Needed) ([]Right, error) {
	var missing []Right
	for _, r := range needed.List() {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Version: "*",
				Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name}}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("ask whether the account may %s: %w", r, err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, r)
		}
	}
	return missing, nil
}
