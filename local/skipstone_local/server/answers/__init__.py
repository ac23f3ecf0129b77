"""What is answered: objects in the form that was asked for, and why a request is not carried out."""
